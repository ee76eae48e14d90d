"""Small wrong changes to the library, each with the fast tests that must notice it.

``old`` stands exactly once in ``file``: a mutation whose text has moved is an error, not a mutant that was killed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.paths import ROOT

PACKAGE = ROOT / "src" / "lioncub"


@dataclass(frozen=True)
class Mutant:
    """``old`` replaced by ``new`` in a file of the package; ``tests`` are files or single tests, the quickest first."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """The mutated text; raises ValueError where ``old`` does not stand in it once."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its text stands {count} times in {self.file}, not once")
        return source.replace(self.old, self.new)

    def check(self) -> None:
        """Raise ValueError where the code or a test of this mutant has moved."""
        self.applied_to((PACKAGE / self.file).read_text(encoding="utf-8"))
        for test in self.tests:
            file, _, function = test.partition("::")
            path = ROOT / "tests" / file
            name = function.partition("[")[0]
            if not path.is_file() or (name and f"def {name}(" not in path.read_text(encoding="utf-8")):
                raise ValueError(f"{self.name}: there is no tests/{test}")


MUTANTS = (
    # ---- the rule ---------------------------------------------------------------------------------------------------
    Mutant(
        "weight decay is applied twice",
        "rule.py",
        'decay = 1 - lr * group["weight_decay"]\n    if g is None:',
        'decay = (1 - lr * group["weight_decay"]) ** 2\n    if g is None:',
        ("test_optimizer.py::test_matches_lion_pytorch_over_50_steps",),
    ),
    Mutant(
        "maximize descends",
        "rule.py",
        'down = -1 if group["maximize"] else 1',
        "down = 1",
        ("test_optimizer.py::test_groups_have_their_own_settings",),
    ),
    Mutant(
        "the growing memory is one step ahead",
        "momentum/memory.py",
        "min(beta2, t / (t + memory))",
        "min(beta2, (t + 1) / (t + 1 + memory))",
        ("momentum/test_memory.py",),
    ),
    Mutant(
        "the warm-up is ignored",
        "momentum/memory.py",
        "return lr * min(1.0, (t + 1) / warmup) if warmup else lr",
        "return lr",
        ("momentum/test_memory.py",),
    ),
    Mutant(
        "a group that joins late counts from the run's first step",
        "momentum/memory.py",
        'beta2_at(max(group["step"] - group["since"], 0), beta2',
        'beta2_at(group["step"], beta2',
        ("momentum/test_memory.py",),
    ),
    Mutant(
        "an element that is not finite moves its momentum",
        "kernels/torch_ops.py",
        "torch.where(finite, m[part], before[1], out=m[part])",
        "pass",
        ("kernels/test_kernels.py::test_lion[plain]",),
    ),
    Mutant(
        "stochastic rounding repeats its numbers in every chunk",
        "kernels/rounding.py",
        "torch.arange(first, first + wide.numel(), device",
        "torch.arange(0, wide.numel(), device",
        ("kernels/test_kernels.py::test_stochastic_rounding_depends_on_the_coordinate_alone[plain]",),
    ),
    # ---- votes and codecs -------------------------------------------------------------------------------------------
    Mutant(
        "the wrong voter decides a tie",
        "kernels/layout.py",
        "self.voters[step % len(self.voters)]",
        "self.voters[(step + 1) % len(self.voters)]",
        ("kernels/test_layout.py",),
    ),
    Mutant(
        "a bucket's padding is voted on by the first tensor's voters",
        "kernels/layout.py",
        "spans[-1] = Span(spans[-1].start, layout.padded_numel, spans[-1].voters)",
        "spans[-1] = Span(spans[-1].start, layout.padded_numel, spans[0].voters)",
        ("kernels/test_layout.py",),
    ),
    Mutant(
        "zero is always sent as plus",
        "kernels/torch_ops.py",
        "positive[where] = (coordinate + step) % 2 == 1",
        "positive[where] = True",
        ("kernels/test_kernels.py::test_signs[plain]",),
    ),
    Mutant(
        "mid-rise levels are clipped one too low",
        "kernels/torch_ops.py",
        "r.mul_(L * half).floor_().clamp_(max=L - 1)",
        "r.mul_(L * half).floor_().clamp_(max=L - 2)",
        ("kernels/test_kernels.py::test_levels[plain]",),
    ),
    Mutant(
        "the level of the mean lies one too high",
        "kernels/operands.py",
        'return 1 + self.below if self.scale == "l1"',
        'return 2 + self.below if self.scale == "l1"',
        ("codecs/test_oracle.py",),
    ),
    Mutant(
        "a span's mask begins one bit late",
        "kernels/bitsliced.py",
        "mask[0] &= -1 << (span.start - first * BLOCK)",
        "mask[0] &= -1 << (span.start - first * BLOCK + 1)",
        ("kernels/test_kernels.py::test_majority[plain-1]",),
    ),
    Mutant(
        "counting bits takes one too many at the end",
        "kernels/bits.py",
        "chosen[-1] &= 0xFF >> (8 - stop % 8)",
        "chosen[-1] &= 0xFF >> (7 - stop % 8)",
        ("codecs/test_codecs.py::test_bits_are_counted",),
    ),
    Mutant(
        "bits are packed from the high end",
        "kernels/bits.py",
        "return (bits.to(torch.uint8).view(-1, 8) << positions).sum(1, dtype=torch.uint8)",
        "return (bits.to(torch.uint8).view(-1, 8) << positions.flip(0)).sum(1, dtype=torch.uint8)",
        ("codecs/test_codecs.py::test_torch_body_of_packing_equals_the_numpy_one",),
    ),
    Mutant(
        "dense values are added in reverse rank order",
        "codecs/dense.py",
        "for nth, worker in enumerate(span.voters):",
        "for nth, worker in enumerate(reversed(span.voters)):",
        ("codecs/test_codecs.py::test_dense_values_are_added_in_rank_order",),
    ),
    Mutant(
        "levels that are added up may carry into their neighbour",
        "codecs/levels.py",
        "return ((1 << (self.bits - 1)) - 1) // self.num_voters",
        "return -(-((1 << (self.bits - 1)) - 1) // self.num_voters)",
        ("codecs/test_codecs.py::test_summed_fields_never_carry",),
    ),
    # ---- headers, checksums, consensus ------------------------------------------------------------------------------
    Mutant(
        "the plan in the headers is not compared",
        "wire/consensus.py",
        '_same(headers, "plan", ',
        '_same(headers, "version", ',
        ("wire/test_headers.py",),
    ),
    Mutant(
        "a worker at another step is not noticed",
        "wire/consensus.py",
        '_same(headers, "step", ',
        '_same(headers, "version", ',
        ("wire/test_headers.py",),
    ),
    Mutant(
        "a sparse gradient raises nothing",
        "wire/consensus.py",
        "if sparse := flagged(headers, Flags.SPARSE):",
        "if (sparse := flagged(headers, Flags.SPARSE)) and quorum > len(headers):",
        ("wire/test_headers.py",),
    ),
    Mutant(
        "a quorum is reached with one voter less",
        "wire/consensus.py",
        "if voters < quorum and",
        "if voters < quorum - 1 and",
        ("wire/test_headers.py::test_quorum",),
    ),
    Mutant(
        "workers that abstain are counted",
        "wire/consensus.py",
        "votes = [nothing if header.abstains else header.present for header in headers]",
        "votes = [header.present for header in headers]",
        ("collectives/test_oracle.py::test_flat",),
    ),
    Mutant(
        "a header's checksum is not looked at",
        "wire/headers.py",
        "if zlib.crc32(zeroed) != crc or len(data)",
        "if len(data)",
        ("wire/test_headers.py",),
    ),
    Mutant(
        "damaged payloads pass",
        "wire/checksums.py",
        "return [] if crcs == seals else",
        "return [] if seals else",
        ("wire/test_damaged_messages.py::test_seals",),
    ),
    Mutant(
        "who got damaged bytes tells nobody",
        "wire/checksums.py",
        "    if notices:\n",
        "    if notices and len(notices) == len(ranks):\n",
        ("wire/test_damaged_messages.py::test_a_notice_names_who_got_damaged_bytes_and_from_whom",),
    ),
    Mutant(
        "different starting weights are not noticed",
        "wire/handshake.py",
        "odd = odd_ones_out([crc for _, _, crc, _ in answers])",
        "odd = odd_ones_out([length for _, length, _, _ in answers])",
        ("wire/test_replicas.py::test_different_starts_are_refused_and_broadcast_mends_them",),
    ),
    Mutant(
        "half of the workers are a majority",
        "wire/replicas.py",
        "if not odd or 2 * len(odd) >= comm.size:",
        "if not odd or 2 * len(odd) > comm.size:",
        ("wire/test_bad_workers.py::test_without_a_majority_all_workers_stop",),
    ),
    # ---- collectives ------------------------------------------------------------------------------------------------
    Mutant(
        "shards go to the wrong workers",
        "collectives/two_phase.py",
        "mail.all_to_all(payload.view(mail.size, -1))",
        "mail.all_to_all(payload.view(mail.size, -1).flip(0))",
        ("collectives/test_oracle.py::test_flat",),
    ),
    Mutant(
        "a shard is counted by the first shard's voters",
        "collectives/two_phase.py",
        "mail.ballot(mail.index * mine, mine)",
        "mail.ballot(0, mine)",
        ("collectives/test_oracle.py::test_flat",),
    ),
    Mutant(
        "the answers' checksums are not looked at",
        "wire/envelope.py",
        "        checksums.check(inbox, self.comm.global_ranks)\n",
        "",
        ("wire/test_damaged_messages.py::test_an_answer_damaged_on_the_wire_is_found_by_who_got_it",),
    ),
    # ---- one step ---------------------------------------------------------------------------------------------------
    Mutant(
        "a momentum advances although its worker abstained",
        "step/pipeline.py",
        "unchanged and self.header.votes_on(tensor) for",
        "unchanged for",
        ("step/test_gradients.py::test_a_broken_worker_abstains_and_the_others_train_on",),
    ),
    Mutant(
        "the fingerprint skips a tensor",
        "step/buckets.py",
        "        for slot, part in self.parts():\n            first, last =",
        "        for slot, part in list(self.parts())[1:]:\n            first, last =",
        ("wire/test_replicas.py::test_one_flipped_bit_is_found_and_named_within_64_steps",),
    ),
    Mutant(
        "a parameter without a voter decays",
        "step/buckets.py",
        "            if not num_voters:\n                continue",
        "            if num_voters < 0:\n                continue",
        ("test_optimizer.py::test_parameters_without_gradient_are_left_alone",),
    ),
    Mutant(
        "a gradient that changes under way is not noticed",
        "step/parameters.py",
        "return self.looks_the_same() and same",
        "return self.looks_the_same()",
        ("step/test_gradients.py::test_gradients_changed_after_they_were_sent_are_detected",),
    ),
    Mutant(
        "an outcome can be applied twice",
        "optimizer.py",
        "ready, self._ready = self._ready, None",
        "ready = self._ready",
        ("test_optimizer.py::test_exchange_and_apply_apart",),
    ),
    Mutant(
        "the rotation of momenta leaves out the last elements",
        "momentum/policy.py",
        "numel * turn // self.every, numel * (turn + 1) // self.every",
        "numel // self.every * turn, numel // self.every * (turn + 1)",
        ("momentum/test_policy.py",),
    ),
    Mutant(
        "momenta are chosen beyond the budget",
        "momentum/policy.py",
        "room -= sizes[index]",
        "room -= 0",
        ("momentum/test_policy.py",),
    ),
    # ---- workers that meet and get lost -----------------------------------------------------------------------------
    Mutant(
        "a suspect is taken for missing",
        "distributed/failure_detection.py",
        "yield silent or tuple(suspected)\n            return",
        "yield tuple(suspected)\n            return",
        ("distributed/test_failure_detection.py::test_a_neighbour_who_is_late_is_not_named",),
    ),
    Mutant(
        "workers of one machine listen to the network",
        "distributed/environment.py",
        "if self.local_size == self.size or is_only_here(self.host):",
        "if is_only_here(self.host):",
        ("distributed/test_environment.py::test_one_machine_listens_on_loopback_whatever_it_is_called",),
    ),
    Mutant(
        "a connection's token is not compared",
        "transport/connecting.py",
        " and compare_digest(token, self._token):",
        " and compare_digest(token, token):",
        ("transport/test_connecting.py::test_unauthenticated_connections_are_refused",),
    ),
    # ---- checkpoints ------------------------------------------------------------------------------------------------
    Mutant(
        "a file's hash is not compared",
        "checkpoint/tensors.py",
        "if digest.hexdigest() != entry.sha256:",
        "if len(digest.hexdigest()) != len(entry.sha256):",
        ("checkpoint/test_checkpoint.py::test_verify_and_show",),
    ),
    Mutant(
        "a manifest's checksum is not compared",
        "checkpoint/manifest.py",
        "_require(type(seal) is str and manifest.to_json() == data,",
        "_require(type(seal) is str,",
        ("checkpoint/test_checkpoint.py::test_a_manifest_with_another_setting_is_refused",),
    ),
    Mutant(
        "the mean of the momenta is not kept by another number of workers",
        "checkpoint/resharding.py",
        "(old, overlap / num_old)",
        "(old, overlap / num_new)",
        ("checkpoint/test_resharding.py::test_means_are_kept_and_nothing_is_made_up",),
    ),
    Mutant(
        "a checkpoint comes into sight before its folder is synced",
        "checkpoint/writing.py",
        "            disk.sync_folder(self.hidden)\n            place(",
        "            place(",
        ("checkpoint/test_crash_points.py::test_a_crash_at_every_operation",),
    ),
    Mutant(
        "workers load different checkpoints",
        "checkpoint/loading.py",
        "if not wrong and any(identity != outcomes.answers[0] for identity in outcomes.answers):",
        "if not wrong and not outcomes.answers:",
        ("checkpoint/test_resume.py::test_machines_with_the_same_step_of_different_runs_load_nothing",),
    ),
)
