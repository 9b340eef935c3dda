"""What a round costs, measured beside what people use today.

    whole          a whole round with the model on its way down, beside plain FedAvg and Flower's SecAgg+
    compare        one setting through Flower's SecAgg+ and our four systems, side by side
    growth         cost against the number of users and the size of the model
    profiling      where the time goes, and what the floor is
    scale          ten thousand users in one process, a hundred thousand by a sample of their groups
    threads        opening a large round with one thread and with two
    authenticated  what a roster and a ledger on disk cost
    deployment     a real Flower deployment on this machine
    page           docs/performance.md and its plots, written from results/ alone

    setting        how many take part, with which updates, and who drops out
    systems        our four systems, one round in steady state
    peer_flower    Flower's legacy SecAgg+, its own functions, stage by stage
    lone_client    one client's UPLOAD in a cohort too large to run whole
    child          one measurement in a process of its own, so that peak memory is its own
    memory         the estimate that refuses what would not fit
    results        reading and writing results/*.json, with commit, protocol, machine and load

`python -m benchmarks` measures all of it and writes results/.
"""
