// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// What units do in a turn.
enum class Pass : std::uint8_t {
  forward,
  backward,
  gradients  ///< of parameters, that backward has deferred: UnitDescription::deferred_phases
};

/// A pass of all units of a chunk for one micro-batch.
struct Turn {
  Pass pass = Pass::forward;
  int micro_batch = 0;
  int chunk = 0;  ///< of the stage

  friend bool operator==(Turn a, Turn b) {
    return a.pass == b.pass && a.micro_batch == b.micro_batch && a.chunk == b.chunk;
  }
};

/// The order of a stage's turns in a step.
using PipelineSchedule = std::vector<Turn>;

/// One forward, one backward: after `stages` - 1 - `stage` forwards, forwards and backwards take
/// turns. So stage s keeps what forward left of at most `stages` - s micro-batches at a time,
/// whatever their number (D. Narayanan et al., "Efficient large-scale language model training on
/// GPU clusters", 2021). With one stage, backward of each micro-batch follows its forward.
PipelineSchedule one_forward_one_backward(int stage, int stages, int micro_batches);

/// Makes the schedule of `chunks` chunks of each stage (ibid.): micro-batches go through the first
/// chunks of all stages, as many at a time as there are stages, then through the second ones, and
/// so on. What fills and empties the pipeline is a chunk, not all of a stage, so that it takes 1 /
/// `chunks` of the time. `micro_batches` is a multiple of `stages`, or less.
PipelineSchedule interleaved(int stage, int stages, int chunks, int micro_batches);

/// One forward, one backward, where backward defers the gradients of parameters: they are computed
/// `stage` micro-batches later, so that a stage has something to do while it would wait, and passes
/// gradients of activations on before (P. Qi et al., "Zero bubble pipeline parallelism", 2024,
/// ZB-H1). Each stage keeps what is left of at most `stages` micro-batches at a time, as the first
/// one does without. Where the three passes take equally long, stages wait a third as long.
PipelineSchedule zero_bubble(int stage, int stages, int micro_batches);

/// Chunks of a step, and the order in which each stage computes them. Chunk k of all is of stage
/// k % stages, its chunk k / stages.
struct Pipeline {
  int stages = 1;
  int chunks = 1;          ///< of each stage
  int first_backward = 0;  ///< the first chunk of all with something that is trained
  std::vector<PipelineSchedule> turns = {};  ///< of each stage

  int last_chunk() const { return stages * chunks - 1; }
  int number(int stage, Turn turn) const { return turn.chunk * stages + stage; }
  int stage_of(int number) const { return number % stages; }
};

/// A message between chunks, of a micro-batch: an output, or its gradient.
struct Message {
  bool forward = true;
  int to = 0;  ///< chunk of all
  int micro_batch = 0;

  friend bool operator==(Message a, Message b) {
    return a.forward == b.forward && a.to == b.to && a.micro_batch == b.micro_batch;
  }
};

/// What stage `from` sends to stage `to` in a step, in the order in which it does.
std::vector<Message> messages(const Pipeline& pipeline, int from, int to);

/// The pipeline of a step, which works through micro-batches in the order of `leaves`. Only
/// forwards: that of an evaluation. Throws Error where as many micro-batches, or chunks, do not fit
/// the schedule.
Pipeline make_pipeline(ScheduleKind schedule, int stages, int chunks, int first_backward,
                       const std::vector<int>& leaves, bool only_forward);

/// Micro-batches 0 to `count` - 1 in an order.
std::vector<int> leaf_sequence(int count, LeafOrder order);

}  // namespace ostrakon::plan
