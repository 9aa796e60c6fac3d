// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// What the units of a chunk compute in a turn.
enum class Pass : std::uint8_t {
  forward,
  backward,
  gradients  ///< gradients of parameters that backward has deferred:
             ///< UnitDescription::deferral
};

/// A pass of all units of a chunk for one micro-batch.
struct Turn {
  Pass pass = Pass::forward;
  int micro_batch = 0;
  int chunk = 0;  ///< index among the stage's chunks

  friend bool operator==(Turn a, Turn b) {
    return a.pass == b.pass && a.micro_batch == b.micro_batch && a.chunk == b.chunk;
  }
};

/// The turns of a stage in a step, in order.
using PipelineSchedule = std::vector<Turn>;

/// One forward, one backward (1F1B): after `stages` - 1 - `stage` warm-up forwards, forwards and
/// backwards take turns. So stage s keeps the activations of at most `stages` - s micro-batches at
/// a time, whatever their number (D. Narayanan et al., "Efficient large-scale language model
/// training on GPU clusters", 2021). With one stage, backward of each micro-batch follows its
/// forward.
PipelineSchedule one_forward_one_backward(int stage, int stages, int micro_batches);

/// Makes the interleaved schedule of `chunks` chunks per stage (ibid.): micro-batches go through
/// the first chunks of all stages, as many at a time as there are stages, then through the second
/// ones, and so on. The pipeline is filled and emptied by chunks instead of whole stages, which
/// takes 1 / `chunks` of the time. `micro_batches` is a multiple of `stages`, or less than it.
PipelineSchedule interleaved(int stage, int stages, int chunks, int micro_batches);

/// One forward, one backward, with deferred gradients of parameters: they are computed `stage`
/// micro-batches later, so that a stage has work where it would wait, and passes gradients of
/// activations on earlier (P. Qi et al., "Zero bubble pipeline parallelism", 2024, ZB-H1). Each
/// stage keeps activations of at most `stages` micro-batches at a time, as the first one does in
/// 1F1B. If the three passes take equally long, stages wait a third as long.
PipelineSchedule zero_bubble(int stage, int stages, int micro_batches);

/// The chunks of a step, and the order in which each stage computes them. Chunk k of all chunks is
/// on stage k % stages, where it has index k / stages.
struct Pipeline {
  int stages = 1;
  int chunks = 1;                            ///< per stage
  int first_backward = 0;                    ///< first of all chunks with trained parameters
  std::vector<PipelineSchedule> turns = {};  ///< one schedule per stage

  int last_chunk() const { return stages * chunks - 1; }
  int number(int stage, Turn turn) const { return turn.chunk * stages + stage; }
  int stage_of(int number) const { return number % stages; }
};

/// A message between chunks for a micro-batch: an output, or its gradient.
struct Message {
  bool forward = true;
  int to = 0;  ///< receiving chunk, among all chunks
  int micro_batch = 0;

  friend bool operator==(Message a, Message b) {
    return a.forward == b.forward && a.to == b.to && a.micro_batch == b.micro_batch;
  }
};

/// The messages that stage `from` sends to stage `to` in a step, in order.
std::vector<Message> messages(const Pipeline& pipeline, int from, int to);

/// The pipeline of a step that works through micro-batches in the order of `leaves`.
/// `only_forward`: for an evaluation. Throws Error where the number of micro-batches or chunks does
/// not fit the schedule.
Pipeline make_pipeline(ScheduleKind schedule, int stages, int chunks, int first_backward,
                       const std::vector<int>& leaves, bool only_forward);

/// Micro-batches 0 to `count` - 1 in the order that `order` names.
std::vector<int> leaf_sequence(int count, LeafOrder order);

}  // namespace ostrakon::plan
