"""What each subcommand of `automap` takes; the work is in the modules of automap.service.cli."""
