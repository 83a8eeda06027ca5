"""Open streams in arrays against a dictionary of them."""

import numpy as np

from algorithm.core.open_streams import Open, OpenStreams


def test_streams_are_what_a_dictionary_of_them_would_hold():
    rng, streams, expected = np.random.default_rng(1), OpenStreams(np.int64), {}
    for step in range(60):
        chosen = rng.permutation(40)[: rng.integers(1, 40)]
        streams.renew(chosen, np.full(len(chosen), step), 100 * chosen, ended := chosen % 3 == step % 3)
        renewed = expected | {one: Open(step, 100 * one) for one in chosen.tolist()}
        expected = {one: kept for one, kept in renewed.items() if one not in chosen[ended]}
        assert streams.close(chosen.item(0)) == expected.pop(chosen.item(0), None)
        streams.put(step, -1, step)
        expected |= {step: Open(-1, step)}
        assert [*streams] == [*expected.items()]
        known, steps, numbers = streams.of(np.arange(100))
        assert np.array_equal(
            np.stack([known.nonzero()[0], steps[known], numbers[known]], 1),
            sorted((one, *kept) for one, kept in expected.items()),
        )
