"""Generation with vLLM inside the processes that train, or in processes of its own."""
