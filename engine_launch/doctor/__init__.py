"""What ``ddtree-launch doctor`` looks at: probes that gather text from this machine, and pure judgements of it."""
