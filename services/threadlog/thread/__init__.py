"""The pure core: state, fold, decide, transcript."""
