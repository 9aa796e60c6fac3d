// SPDX-License-Identifier: Apache-2.0
// Audited steps: they change no bit, and find bits that were flipped on purpose, with the rank.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/trainer/handlers/audit_handlers.hpp>
#include <ostrakon/trainer/trainer_checks.hpp>
#include <ostrakon/watch/fault.hpp>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using testing::error_of;
using watch::FlipTarget;

/// `micro_batches`: of each rank.
config::Settings audited(bool is_llama, int micro_batches = 1) {
  const std::int64_t leaves = std::int64_t{micro_batches} * world_ranks();
  config::Settings settings = is_llama ? small_llama(leaves) : small_gpt2(leaves);
  settings.training.steps = 4;
  settings.runtime.audit = 1;
  return settings;
}

/// Expects that a run has sent what the plans of its steps say.
void expect_planned_traffic(const config::Settings& settings, const train::Trainer& trainer) {
  const std::int64_t steps = settings.training.steps, every = settings.runtime.audit;
  const std::int64_t audited = every > 0 ? steps / every : 0;
  const plan::StepPlan& step = trainer.program(plan::Purpose::train).plan;
  const plan::StepPlan& other = every > 0 ? trainer.program(plan::Purpose::audit).plan : step;
  for (const plan::Span& span : spans_of_messages(step))
    EXPECT_EQ(trainer.bytes_sent(span) + trainer.bytes_left_out(span),
              (steps - audited) * bytes_sent(step, span) + audited * bytes_sent(other, span));
}

/// What audits of a run send to all ranks: their digests.
std::int64_t bytes_of_digests(const config::Settings& settings, const train::Trainer& trainer) {
  if (settings.runtime.audit == 0) return 0;
  const plan::StepPlan& plan = trainer.program(plan::Purpose::audit).plan;
  std::int64_t bytes = 0;
  for (const plan::Action& action : plan.actions)
    if (action.kind == plan::Kind::audit) bytes += plan.bytes_sent(action);
  EXPECT_EQ(bytes, 8 * (static_cast<std::int64_t>(plan.digests.size()) + 1) * (world_ranks() - 1));
  return bytes * (settings.training.steps / settings.runtime.audit);
}

std::vector<std::uint64_t> digests_of(const config::Settings& settings) {
  SmallRun run(settings);
  const std::int64_t sent_before = run.mesh.world().bytes_sent();
  std::vector<std::uint64_t> digests;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step) {
    const train::StepResult result = run.step(step);
    const std::int64_t every = settings.runtime.audit;
    EXPECT_EQ(result.audited, every > 0 && step % every == 0) << "step " << step;
    EXPECT_EQ(result.audit_finding, "");
    digests.push_back(run.trainer.state_digest());
  }
  const std::int64_t last =
      settings.runtime.audit > 0
          ? settings.training.steps / settings.runtime.audit * settings.runtime.audit
          : 0;
  EXPECT_EQ(run.trainer.progress().audited_step, last);
  expect_planned_traffic(settings, run.trainer);
  EXPECT_EQ(run.mesh.world().bytes_sent() - sent_before, bytes_of_digests(settings, run.trainer));
  EXPECT_EQ(runtime::memory_count().bytes - run.before.bytes, run.trainer.planned_peak_bytes());
  return digests;
}

void expect_no_change(const config::Settings& settings, const std::string& name) {
  SCOPED_TRACE(name);
  config::Settings plain = settings;
  plain.runtime.audit = 0;
  EXPECT_EQ(digests_of(settings), digests_of(plain));
}

TEST(Audits, ChangeNoBitAndFindNothing) {
  for (const bool is_llama : {false, true})
    for (const plan::Sharding sharding : all_shardings) {
      config::Settings settings = audited(is_llama, 2);
      settings.parallel.sharding = sharding;
      settings.runtime.audit = is_llama ? 2 : 1;
      expect_no_change(settings, plan::name(sharding));
    }
}

TEST(Audits, GoWithOtherChoices) {
  config::Settings settings = audited(false, 2);
  settings.parallel.updates = plan::Updates::optimistic;
  settings.parallel.activation_checkpointing.every = 1;
  expect_no_change(settings, "optimistic, checkpointed");
  settings = audited(true, 2);
  settings.parallel.offload = plan::Offload::optimizer;
  settings.parallel.offload_activations = true;
  settings.precision.gather = DType::bf16;
  settings.runtime.streams = on_threads;
  expect_no_change(settings, "offloaded, bf16, on threads");
  settings = audited(true);
  settings.precision.gather = DType::bf16;
  settings.parallel.leaf_order = plan::LeafOrder::shuffled;
  expect_no_change(settings, "masters that are rounded as they are gathered");
}

TEST(Audits, GoWithRanksThatComputeTogether) {
  if (world_ranks() % 2 != 0) GTEST_SKIP();
  const auto divided = [](const char* name, auto&& divide) {
    config::Settings settings = audited(true, 2);
    settings.model.width = 48;
    settings.model.heads = settings.model.kv_heads = 4;
    settings.training.sequence_length = 32;
    divide(settings);
    expect_no_change(settings, name);
  };
  divided("tensor", [](config::Settings& settings) {
    settings.tensor = 2;
    settings.tensor_grain = 2;
  });
  divided("context", [](config::Settings& settings) {
    settings.context = 2;
    settings.training.context_grain = 2;
    settings.training.global_batch_size /= settings.training.micro_batch_size;
    settings.training.micro_batch_size = 1;
  });
  divided("experts", [](config::Settings& settings) {
    settings.model.experts.count = 4;
    settings.model.experts.per_token = 2;
    settings.model.experts.width = 24;
    settings.expert = 2;
  });
  if (world_ranks() < 4) return;
  divided("groups", [](config::Settings& settings) { settings.shard_group = 2; });
}

/// The name of the last action of a step of training that begins like this: of a unit's phases the
/// one that completes its arrays.
std::string last_action(const train::Trainer& trainer, const std::string& begin) {
  const plan::StepPlan& plan = trainer.program(plan::Purpose::train).plan;
  std::string found;
  for (const plan::Action& action : plan.actions)
    if (plan.describe(action).compare(0, begin.size(), begin) == 0) found = plan.describe(action);
  EXPECT_NE(found, "") << begin;
  return found;
}

/// Flips bits in a run whose every step is audited, one in each step, of each kind in turn.
class Flips {
 public:
  explicit Flips(const config::Settings& settings)
      : settings_(settings), expected_(clean()), run_(settings) {}

  void take(std::int64_t step) {
    const watch::Fault fault = fault_of(step);
    const bool is_mine = run_.mesh.world().rank() == fault.rank;
    if (is_mine) run_.trainer.flip(fault);
    const train::StepResult result = run_.step(step);
    const auto target = static_cast<std::size_t>(fault.target);
    ++flipped_[target];
    if (is_mine) {
      EXPECT_NE(run_.trainer.flipped(), "") << fault.action;
    }
    // What is not found has changed no number of the step, and what is found was made good.
    EXPECT_EQ(run_.trainer.state_digest(), expected_[static_cast<std::size_t>(step - 1)])
        << result.audit_finding;
    if (result.audit_finding.empty()) return;
    ++found_[target];
    expect_named(result.audit_finding, fault.rank);
  }

  int flipped(FlipTarget target) const { return flipped_[static_cast<std::size_t>(target)]; }
  int found(FlipTarget target) const { return found_[static_cast<std::size_t>(target)]; }

 private:
  std::vector<std::uint64_t> clean() const {
    config::Settings settings = settings_;
    settings.runtime.audit = 0;
    return digests_of(settings);
  }

  static watch::Fault fault_of(std::int64_t step) {
    const auto random = [&](std::uint64_t which, int below) {
      return static_cast<int>(
          math::mix_bits(math::mix_bits(which) + static_cast<std::uint64_t>(step)) %
          static_cast<std::uint64_t>(below));
    };
    watch::Fault fault;
    fault.rank = random(1, world_ranks());
    fault.step = step;
    fault.kind = watch::FaultKind::flip;
    fault.target = static_cast<FlipTarget>(step % 4);
    fault.seed = static_cast<std::uint64_t>(step);
    const char* const units[] = {"block.0", "block.1", "embedding"};
    const bool goes_back = fault.target == FlipTarget::gradient ||
                           (fault.target != FlipTarget::message && random(2, 2) == 0);
    // The gradient of activations ends with the embedding's backward.
    const bool has_embedding = fault.target != FlipTarget::product && !goes_back;
    fault.action = fault.target == FlipTarget::message ? "gather"
                   : goes_back                         ? "backward"
                                                       : "forward";
    fault.action += std::string("(") + units[random(3, has_embedding ? 3 : 2)] + ")";
    return fault;
  }

  /// Expects that a finding names this rank and no other.
  static void expect_named(const std::string& finding, int rank) {
    for (int r = 0; r < world_ranks(); ++r) {
      const std::string name = "rank " + std::to_string(r) + " (";
      EXPECT_EQ(finding.find(name) != std::string::npos, r == rank) << finding;
    }
  }

  const config::Settings settings_;
  const std::vector<std::uint64_t> expected_;
  SmallRun run_;
  std::array<int, 4> flipped_{}, found_{};
};

void flip_bits(std::int64_t steps, bool is_llama) {
  if (world_ranks() == 1) GTEST_SKIP() << "parameters that are not gathered stay as they are";
  config::Settings settings = audited(is_llama);
  settings.training.steps = steps;
  Flips flips(settings);
  for (std::int64_t step = 1; step <= steps; ++step) flips.take(step);
  for (const FlipTarget target : {FlipTarget::gradient, FlipTarget::parameter, FlipTarget::message})
    EXPECT_EQ(flips.found(target), flips.flipped(target))
        << name_in(watch::flip_target_names, target);
  // A bit of an activation may be rounded away.
  EXPECT_GT(3 * flips.found(FlipTarget::product), flips.flipped(FlipTarget::product));
  std::printf("found %d of %d flips of products, all others\n", flips.found(FlipTarget::product),
              flips.flipped(FlipTarget::product));
}

TEST(Audits, FindFlippedBitsAndNameTheRank) { flip_bits(40, false); }

TEST(Audits, DISABLED_FindAThousandFlippedBits) {
  flip_bits(500, false);
  flip_bits(500, true);
}

TEST(Audits, DISABLED_FindNothingInTenThousandSteps) {
  config::Settings settings = audited(true);
  settings.training.steps = 10000;
  digests_of(settings);
}

/// Flips bits of ranks that compute in pairs: both are named, and no others. With experts messages
/// also say how many tokens come, and ranks that are told different numbers may wait forever.
void flip_bits_of_pairs(const config::Settings& settings) {
  const int kinds = settings.expert > 1 ? 2 : 3;
  config::Settings plain = settings;
  plain.runtime.audit = 0;
  const std::vector<std::uint64_t> expected = digests_of(plain);
  SmallRun run(settings);
  std::array<int, 4> found{};
  for (std::int64_t step = 1; step <= settings.training.steps; ++step) {
    watch::Fault fault;
    fault.kind = watch::FaultKind::flip;
    fault.rank = static_cast<int>(step) % world_ranks();
    fault.step = step;
    fault.seed = static_cast<std::uint64_t>(step);
    constexpr FlipTarget targets[] = {FlipTarget::gradient, FlipTarget::product,
                                      FlipTarget::message};
    constexpr const char* actions[] = {"backward(block.0", "forward(block.0", "exchange"};
    fault.target = targets[step % kinds];
    fault.action = actions[step % kinds];
    if (fault.target != FlipTarget::message) fault.action = last_action(run.trainer, fault.action);
    if (run.mesh.world().rank() == fault.rank) run.trainer.flip(fault);
    const train::StepResult result = run.step(step);
    EXPECT_EQ(run.trainer.state_digest(), expected[static_cast<std::size_t>(step - 1)])
        << fault.action << " " << result.audit_finding;
    if (result.audit_finding.empty()) continue;
    ++found[static_cast<std::size_t>(fault.target)];
    const int first = fault.rank / 2 * 2;
    EXPECT_EQ(result.audit_finding.find(text("one of ranks ", first, "-", first + 1, " (")), 0U)
        << result.audit_finding;
    EXPECT_HAS(result.audit_finding, "has computed a wrong gradient of ");
    EXPECT_LACKS(result.audit_finding, ";");
  }
  EXPECT_EQ(found[static_cast<std::size_t>(FlipTarget::gradient)], settings.training.steps / kinds);
  EXPECT_GT(found[static_cast<std::size_t>(FlipTarget::product)], 0);
  EXPECT_EQ(found[static_cast<std::size_t>(FlipTarget::message)] > 0, kinds == 3);
}

TEST(Audits, NameRanksThatComputeTogether) {
  if (world_ranks() < 4) GTEST_SKIP() << "takes two groups";
  const auto find_flips = [](const char* name, auto&& divide) {
    SCOPED_TRACE(name);
    config::Settings settings = audited(true);
    settings.model.width = 48;
    settings.model.heads = settings.model.kv_heads = 4;
    settings.training.sequence_length = 32;
    settings.training.steps = 24;
    divide(settings);
    flip_bits_of_pairs(settings);
  };
  find_flips("tensor", [](config::Settings& settings) {
    settings.tensor = 2;
    settings.tensor_grain = 2;
    settings.training.global_batch_size /= 2;  // one micro-batch
  });
  find_flips("context", [](config::Settings& settings) {
    settings.context = 2;
    settings.training.context_grain = 2;
    settings.training.global_batch_size /= 2 * settings.training.micro_batch_size;
    settings.training.micro_batch_size = 1;
  });
  find_flips("experts", [](config::Settings& settings) {
    settings.model.experts.count = 4;
    settings.model.experts.per_token = 2;
    settings.model.experts.width = 24;
    settings.expert = 2;
  });
}

/// Takes steps until one fails; returns the message.
std::string failure_of(const config::Settings& settings, const char* inject) {
  SmallRun run(settings);
  const watch::Fault fault = watch::parse_fault(inject);
  if (run.mesh.world().rank() == fault.rank) run.trainer.flip(fault);
  const std::string message = error_of<CollectiveError>([&] {
    for (std::int64_t step = 1; step <= settings.training.steps; ++step) run.step(step);
  });
  EXPECT_EQ(run.trainer.progress().step, fault.step - 1);
  EXPECT_EQ(run.trainer.progress().audited_step, fault.step - 1);
  EXPECT_FALSE(run.trainer.is_intact());
  return message;
}

TEST(Audits, EndARunWhoseRankIsWrongAgain) {
  if (world_ranks() == 1) GTEST_SKIP() << "one rank does the same again";
  const std::string message =
      failure_of(audited(false), "rank 1, step 3, backward(block.0): flip gradient 5 always");
  EXPECT_HAS(message, "step 3: an audit has found wrong numbers, also when the step was repeated");
  EXPECT_HAS(message,
             "the last step whose audit has passed is 2. Resume without that host, "
             "from a checkpoint of step 1 or before");
  // Of two ranks nobody knows who is right.
  EXPECT_HAS(message, world_ranks() == 2 ? ": one of ranks 0-1 (" : ": rank 1 (");
  EXPECT_HAS(message, "a wrong gradient of block.0");
}

TEST(Audits, NameTheRankWhoseParametersHaveChanged) {
  config::Settings settings = audited(true);
  settings.parallel.sharding = plan::Sharding::none;
  const int rank = world_ranks() - 1;
  const std::string message = failure_of(
      settings,
      ("rank " + std::to_string(rank) + ", step 2, forward(block.1): flip parameter 11").c_str());
  // The step is repeated, as a digest may be wrong rather than what is stored.
  EXPECT_HAS(message,
             "step 2: an audit has found wrong numbers, also when the step was repeated: ");
  EXPECT_HAS(message, "parameters of block.1");
  EXPECT_HAS(message, "have changed during the step");
  EXPECT_HAS(message, "Parameters are damaged");
  EXPECT_HAS(message, "rank " + std::to_string(rank) + " (");
}

/// Updates that are undone leave what was stored before, bit for bit: it counts as unchanged.
TEST(Audits, RepeatAStepWhoseUpdatesWereUndone) {
  if (world_ranks() == 1) GTEST_SKIP() << "takes two groups";
  config::Settings settings = audited(false, 2);
  settings.parallel.updates = plan::Updates::optimistic;
  settings.training.steps = 2;
  const std::vector<std::uint64_t> expected = digests_of(settings);
  SmallRun run(settings);
  const watch::Fault fault =
      watch::parse_fault("rank 1, step 2, backward(block.0, again): flip gradient 5");
  if (run.mesh.world().rank() == fault.rank) run.trainer.flip(fault);
  run.step(1);
  const std::string finding = run.step(2).audit_finding;
  EXPECT_HAS(finding, "rank 1 (");
  EXPECT_HAS(finding, "has computed a wrong gradient of block.0");
  EXPECT_LACKS(finding, ";");
  EXPECT_EQ(run.trainer.state_digest(), expected.back());
}

/// What is stored may be damaged between two steps, too: of three replicas the two that are equal
/// are right.
TEST(Audits, NameTheReplicaThatDiffers) {
  if (world_ranks() < 4) GTEST_SKIP() << "takes three replicas";
  config::Settings settings = audited(true);
  settings.parallel.sharding = plan::Sharding::none;
  settings.runtime.audit = 2;
  settings.training.steps = 2;
  SmallRun run(settings);
  // The step whose action reads it is not audited. What backward reads last is not read again.
  const watch::Fault fault =
      watch::parse_fault("rank 2, step 1, backward(block.0): flip parameter 5");
  if (run.mesh.world().rank() == fault.rank) run.trainer.flip(fault);
  run.step(1);
  const std::string message = error_of<CollectiveError>([&] { run.step(2); });
  EXPECT_HAS(message, "parameters of block.0 in the memory of rank 2 (");
  EXPECT_HAS(message,
             "are not those of other replicas. Parameters are damaged; no audit has passed");
  EXPECT_LACKS(message, "wrong gradient");
}

TEST(Audits, AgreeOnDigests) {
  mesh::Mesh mesh(MPI_COMM_WORLD, 0, 0, 1);
  const train::AuditTable sent{{}, {{1, 2}, {3, 4}}};
  train::AuditTable received = sent;
  train::agree_on(received, mesh.world());
  EXPECT_EQ(received.digests, sent.digests);
  if (world_ranks() == 1) return;
  for (int rank = 0; rank < world_ranks(); ++rank) {
    received = sent;
    if (mesh.world().rank() == rank) received.digests[1][0] ^= std::uint64_t{1} << 40U;
    train::agree_on(received, mesh.world());
    EXPECT_TRUE(received.digests.empty());
  }
}

TEST(Audits, RefuseWhatTheyCannotCompute) {
  const auto refusal = [](const config::Settings& settings) {
    mesh::Mesh mesh(MPI_COMM_WORLD, 0, settings.shard_group, static_cast<int>(settings.pipeline));
    return error_of<CollectiveError>([&] { train::make_trainer(settings, mesh); });
  };
  config::Settings settings = audited(true);
  settings.parallel.offload = plan::Offload::parameters;
  EXPECT_HAS(refusal(settings), "runtime.audit: memory.offload = parameters: expected none");
  settings = audited(true);
  settings.parallel.offload = plan::Offload::optimizer;
  settings.optimizer.clip_norm = 0.0;
  EXPECT_HAS(refusal(settings), "runtime.audit: memory.early_updates = true");
  if (world_ranks() > 1) {
    mesh::Mesh mesh(MPI_COMM_WORLD, 0, 0, 1);
    comm::Communicator& world = mesh.world();
    const Facts own = {{"kernel", world.rank() == 1 ? "old" : "new"}};
    train::require_same_kernels(0, own, world);
    train::require_same_kernels(3, {{"kernel", "new"}}, world);
    EXPECT_HAS(error_of<CollectiveError>([&] { train::require_same_kernels(3, own, world); }),
               "runtime.audit = 3: expected 0, or ranks that compute with the same kernels, as an "
               "audit compares bits: the kernel is old on rank 1");
    // Not only kernels are compared: see kernel_facts.
    const int threads = math::kernel_threads();
    if (world.rank() == 1) math::set_gemm_threads(threads + 1);
    EXPECT_HAS(refusal(audited(true)), "the number of threads in matrix products is ");
    math::set_gemm_threads(threads);
  }
  if (world_ranks() % 2 != 0) return;
  settings = audited(true, 4);
  settings.pipeline = 2;
  EXPECT_HAS(refusal(settings), "runtime.audit: parallel.pipeline = 2: expected 1");
}

TEST(Audits, RefuseFlipsOfWhatIsNotThere) {
  SmallRun run(audited(true));
  const auto refusal = [&](const char* action) {
    const std::string fault = text("rank 0, step 1, ", action);
    return error_of([&] { run.trainer.flip(watch::parse_fault(fault)); });
  };
  EXPECT_EQ(refusal("backward(block.0): flip gradient"), "no error");
  EXPECT_HAS(refusal("backward(block.7): flip gradient"),
             "runtime.inject: rank 0 has no action \"backward(block.7)\"");
  EXPECT_HAS(refusal("backward(block.7, again): flip gradient"), "has no action");
  // Nobody reads the gradient of what the embedding reads.
  EXPECT_HAS(refusal("backward(embedding): flip product"),
             "runtime.inject: \"backward(embedding)\" of rank 0 has no product to flip a bit of");
  EXPECT_EQ(refusal("backward(block.0, again): flip gradient"), "no error");
}

TEST(Audits, RefuseFlipsOfActionsThatTheStepDoesNotRun) {
  config::Settings settings = audited(true);
  settings.runtime.audit = 2;
  settings.training.steps = 3;
  SmallRun run(settings);
  const auto refusal = [&](int step, const char* action) {
    const std::string fault = text("rank 0, step ", step, ", ", action);
    return error_of([&] { run.trainer.flip(watch::parse_fault(fault)); });
  };
  EXPECT_EQ(refusal(2, "backward(block.0, again): flip gradient"), "no error");
  EXPECT_HAS(refusal(1, "backward(block.0, again): flip gradient"),
             "runtime.inject: rank 0 has no action \"backward(block.0, again)\" in step 1: ");
  // With `always` it strikes in step 2, and after step 2 none is audited.
  EXPECT_EQ(refusal(1, "backward(block.0, again): flip gradient 3 always"), "no error");
  EXPECT_HAS(refusal(3, "backward(block.0, again): flip gradient 3 always"),
             "has no action \"backward(block.0, again)\" in step 3 or later: ");
}

}  // namespace
}  // namespace ostrakon::tests
