"""The ModelAdapter controller: LoRA adapters in the engines that the status says they are in."""
