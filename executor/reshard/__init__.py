"""From the weights as they train to the weights as they generate, on the same ranks or others.

`parts` says what a rank holds or needs of each Hugging Face tensor, `schedule` in which order
and in which buckets it travels; `gather`, `exchange` and `broadcast` move it (one all-gather per
micro-data-parallel group; any layout to any other; between separate processes), `buffer` keeps
it, `ledger` counts it.
"""
