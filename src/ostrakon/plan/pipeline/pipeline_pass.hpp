// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/pipeline_schedule.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/sums_pass.hpp>
#include <ostrakon/plan/passes/tape.hpp>
#include <vector>

namespace ostrakon::plan {

/// Writes the messages between stages: outputs go forward, their gradients backward, each between
/// ranks with the same index in two stages.
///
/// Nothing is buffered: a send is done when the other stage has received. So that a stage neither
/// stalls nor blocks its neighbour, a turn (forward or backward of a micro-batch) first posts the
/// receives that it and the next turn need, and ends by waiting for the sends of earlier turns, not
/// for its own. Sends are one stream and receives another. Sends are in the order of turns, and
/// receives from a stage in the order of its sends. The send of a turn waits for no receive of a
/// later one, so stages wait for each other in a circle only if their turns do. prove_stages shows
/// this for each set of plans.
class PipelinePass {
 public:
  PipelinePass(Builder& builder, const Pipeline& pipeline, const Tasks& tasks, Tapes& tapes,
               SumsPass& sums);

  /// Posts the receives of the task and of the next turn.
  void before(const Task& task);
  /// Sends the task's results for other stages; ends the buffers that were sent before.
  void after(const Task& task);
  /// Sends updated parameters to the stage that has a copy.
  void share(const Task& task);

 private:
  /// Turns that compute one after the other without a message in between: a forward and its
  /// backward, if that follows at once.
  struct Leg {
    Task first, last;               ///< first and last task of these turns
    std::vector<Message> received;  ///< messages needed from other stages
  };

  void list_legs(const Tasks& tasks);
  std::vector<Message> needs(const Task& first) const;
  const Chunk& chunk(const Task& task) const;
  void receive_up_to(Message wanted, const Task& task);
  void receive(Message message, int from, const Task& task);
  void send(const Task& task);
  Action& emit(Kind kind, const Task& task, int peer, std::int64_t bytes);

  Builder& builder_;
  const Pipeline& pipeline_;
  Tapes& tapes_;
  SumsPass& sums_;
  const std::vector<Chunk> chunks_;
  std::vector<Leg> legs_;
  std::vector<std::vector<Message>> coming_;  // per stage: the messages that it sends here
  std::vector<std::size_t> received_;         // per stage: how many of these have a receive in the
                                              // plan
  std::size_t begun_ = 0;                     // legs that have begun
  std::size_t asked_ = 0;                     // legs whose receives are in the plan
  int sent_ = -1;                             // the buffer that is being sent
  int sent_by_ = -1;                          // the unit that wrote it
};

}  // namespace ostrakon::plan
