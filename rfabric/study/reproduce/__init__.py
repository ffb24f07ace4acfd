"""Published experiments run again: paper, ours, ratio, trust. One module a paper."""
