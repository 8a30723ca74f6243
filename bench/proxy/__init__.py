"""What the browser door costs, beside nginx and a relay on Starlette and httpx."""
