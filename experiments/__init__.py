"""The paper's table, figures and theorems, each as one command, with our own settings beside them.

    sparsesecagg reproduce NAME [--quick] [--seed S]

`common` holds what all share. `fig3`, `fig5`, `fig6` and `mcmahan` train until a target and differ in their settings,
so each is one file. Every other experiment is a folder: `config` says what is measured at which scale, `run` measures,
`plot` draws from the results file alone and says how we compare with the paper. `claims` and `publish` write
docs/reproduction.md. The others write the tables of other pages.
"""
