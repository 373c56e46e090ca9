"""Metering: usage of each tenant by minute, hour and day, counted from usage facts."""
