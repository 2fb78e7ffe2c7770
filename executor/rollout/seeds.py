"""One sampling seed per response."""

import hashlib


def response_seed(seed: int, iteration: int, prompt_id: int, response: int) -> int:
    """A seed below 2^63 that depends on these four alone, not on replica or place in the batch.

    Args:
        seed: of the run.
        iteration: that the response is generated in.
        prompt_id: of the prompt in the data.
        response: number among the prompt's responses.
    """
    text = f"{seed}/{iteration}/{prompt_id}/{response}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1
