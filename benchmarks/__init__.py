"""What a round costs, measured beside what people use today.

    compare      one cohort through Flower's SecAgg+ and our four systems, side by side
    scaling      cost against N, d, α and θ, with fitted exponents beside the paper's O(·)
    limits       how far the hot loops are from this machine's AES-256-CTR and memory bandwidth
    profiling    where the time still goes
    scale        ten thousand users in one process, a hundred thousand by a sample of their pods
    threads      opening a large round with one thread and with two
    authenticated  what a roster costs a client
    page         docs/performance.md and its plots, written from results/ alone

    cohort       who takes part, with which updates, and who drops out
    systems      our four systems, one round in steady state
    peer_flower  Flower's legacy SecAgg+, its own functions, stage by stage
    lone_client  one client's UPLOAD in a cohort too large to run whole
    child        one measurement in a process of its own, so that peak memory is its own
    memory       peak memory, and the estimate that refuses what would not fit
    results      reading and writing results/*.json, with commit, protocol, machine and load

`python -m benchmarks` runs a short version of everything and writes results/.
"""
