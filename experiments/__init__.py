"""The paper's table, figures and theorems, each as one command, with our own settings beside them.

    sparsesecagg reproduce NAME [--quick | --paper]

`common` holds what all share. `fig3`, `fig5` and `fig6` train until a target and differ in their settings, so each is
one file. Every other experiment is a folder: `config` says what is measured at which scale, `run` measures, `plot`
draws from the results file alone and says how we compare with the paper. `audit`, `many_rounds`, `sizes` and `plans`
write the tables of docs/privacy.md, the README and docs/planning.md.
"""
