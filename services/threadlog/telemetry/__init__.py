"""What a process tells its operators: metrics, and whether it is alive and ready."""
