// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/pipeline_schedule.hpp>
#include <ostrakon/plan/sums_pass.hpp>
#include <ostrakon/plan/tape.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <vector>

namespace ostrakon::plan {

/// What crosses the borders of a stage: inputs come and outputs go forward, their gradients the
/// other way, each between ranks with the same index in two stages.
///
/// Nothing is buffered in between: a send is done when the other stage has received. So that a
/// stage neither stalls meanwhile nor blocks its neighbour, a turn (forward or backward of a
/// micro-batch) begins by beginning to receive what it and the next turn need, and ends by waiting
/// for what earlier turns have sent, not for what it sends itself. Sends are one stream and
/// receives another. Sends are in the order of turns, and what a stage receives from another in the
/// order in which that one sends it. The send of a turn waits for no receive of a later one, so no
/// two stages wait for each other in a circle as long as their turns don't. prove_stages shows it
/// for each set of plans.
class PipelinePass {
 public:
  PipelinePass(Builder& builder, const Pipeline& pipeline, const Tasks& tasks, Tapes& tapes,
               SumsPass& sums);

  /// Begins to receive what comes with the task, or the next turn.
  void before(const Task& task);
  /// Sends what the task left for other stages; ends what was sent before.
  void after(const Task& task);
  /// Brings updated parameters to the stage that has a copy.
  void share(const Task& task);

 private:
  /// Turns that compute one after the other without a message in between: where a forward's
  /// backward follows at once, both.
  struct Leg {
    Task first, last;               ///< of its tasks
    std::vector<Message> received;  ///< what it needs of other stages
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
  std::vector<std::vector<Message>> coming_;  // of each stage: what it sends here
  std::vector<std::size_t> received_;         // of these, how many are written
  std::size_t begun_ = 0;                     // legs that have begun
  std::size_t asked_ = 0;                     // legs whose receives are written
  int sent_ = -1;                             // a buffer in flight
  int sent_by_ = -1;                          // the unit that left it
};

}  // namespace ostrakon::plan
