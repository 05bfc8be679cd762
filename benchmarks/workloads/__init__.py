"""One module per workload. Each has `async def run(plan) -> dict`, whose result goes into results.json as it is."""
