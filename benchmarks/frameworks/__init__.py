"""Agents of frameworks with `resumable`, beside the framework alone and with its own store."""
