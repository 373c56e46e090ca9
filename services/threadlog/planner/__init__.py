"""The planner: decides, asks models, closes steps and turns."""
