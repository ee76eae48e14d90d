"""The pool of message memory: reuse, limits, threads."""

from __future__ import annotations

import gc
import threading
import weakref

import torch

from lioncub.kernels.buffers import GRAIN_BYTES, LEAST_BYTES, Pool

MEBI = 1 << 20


def test_memory_comes_back_when_the_last_view_of_it_is_gone() -> None:
    pool = Pool()
    first = pool.empty(4, MEBI)
    address, view = first.data_ptr(), first[2, 100:200]
    assert first.shape == (4, MEBI)
    assert first.dtype == torch.uint8
    del first
    assert pool.kept_bytes == 0
    view.fill_(7)
    del view
    assert pool.kept_bytes == 4 * MEBI
    assert pool.empty(4 * MEBI).data_ptr() == address


def test_tensors_in_use_share_nothing() -> None:
    pool = Pool()
    tensors = [pool.empty(MEBI).fill_(number) for number in range(10)]
    assert [int(tensor.float().mean()) for tensor in tensors] == list(range(10))


def test_never_more_is_kept_than_was_in_use_at_one_time() -> None:
    pool = Pool()
    for size in range(1, 12):  # one after the other, none fits the next
        pool.empty(size**2 * 3 * MEBI)
        assert pool.kept_bytes <= size**2 * 3 * MEBI
    both = [pool.empty(5 * MEBI), pool.empty(400 * MEBI)]
    del both
    assert pool.kept_bytes <= 405 * MEBI
    pool.let_go()
    assert pool.kept_bytes == 0


def test_a_small_one_does_not_take_what_a_large_one_needs() -> None:
    pool = Pool()
    large = pool.empty(64 * MEBI)
    address = large.data_ptr()
    del large
    small = pool.empty(MEBI)
    assert small.data_ptr() != address
    assert pool.empty(40 * MEBI).data_ptr() != small.data_ptr()


def test_what_is_small_is_left_to_torch() -> None:
    pool = Pool()
    del (small := [pool.empty(LEAST_BYTES - 1)])[:]
    assert not small
    assert pool.kept_bytes == 0
    pool.empty(LEAST_BYTES)
    assert pool.kept_bytes == GRAIN_BYTES


def test_many_threads() -> None:
    pool, problems = Pool(), []

    def work(number: int) -> None:
        for size in range(100):
            tensor = pool.empty((1 + size % 7) * GRAIN_BYTES).fill_(number)
            if not tensor.eq(number).all():
                problems.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not problems
    assert pool.kept_bytes <= 8 * 2 * (2 * 7 + 1) * GRAIN_BYTES, "two each, roomy ones"


def test_finalizers_that_run_in_the_middle_do_not_wait_for_ever() -> None:
    class Owner:
        """As an optimizer that ends in a cycle of garbage."""

        def __init__(self, pool: Pool) -> None:
            self.itself, self.memory = self, pool.empty(MEBI)
            weakref.finalize(self, pool.let_go)

    pool, before = Pool(), gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            Owner(pool)
            pool.empty(MEBI)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert pool.kept_bytes == 0
