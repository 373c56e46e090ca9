"""The tool-runner: claims requested calls and runs them in their thread's workspace."""
