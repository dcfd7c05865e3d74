"""The subcommands of ``ddtree-launch``, one module each; none of them imports torch before it must."""
