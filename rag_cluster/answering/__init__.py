"""Evidence -> answer: refusal, context, prompts, citations."""
