"""`SecAgg(FedAvg())` without options, beside plain FedAvg: what it costs and what it loses."""
