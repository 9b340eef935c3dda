"""The lab: training, audits, attacks and reports on top of the product. The product never imports it.

learning   federated training of small models, simulated
audit      what server and colluders read of real rounds, and the theory beside it
attacks    servers and users that lie, each with a control
report     run folders, drawn and compared
cli        the commands of all this, added to those of the product
"""
