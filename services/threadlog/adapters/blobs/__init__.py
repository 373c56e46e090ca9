"""Blobs as files of a folder that all services of a cluster share."""
