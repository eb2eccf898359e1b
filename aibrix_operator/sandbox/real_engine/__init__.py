"""A real vLLM on the CPU below the sandbox: installer, tiny models, kvcached stand-in, and the demo that uses them."""
