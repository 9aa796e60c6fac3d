// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/tape.hpp>
#include <ostrakon/plan/tasks.hpp>
#include <vector>

namespace ostrakon::plan {

/// What crosses the borders of a stage: inputs come and outputs go forward, their gradients the
/// other way, each between ranks with the same index in neighbouring stages.
///
/// Nothing is buffered in between: a send is done when the other stage has received. So that a
/// stage neither stalls meanwhile nor blocks its neighbour, a turn (forward or backward of a
/// micro-batch) begins by beginning to receive what it and the next turn need, and ends by waiting
/// for what earlier turns have sent, not for what it sends itself. Sends are one stream and
/// receives another, both in the order of turns: the send of a turn waits for no receive of a later
/// one, so no two stages wait for each other in a circle as long as their turns don't. prove_stages
/// shows it for each set of plans.
class PipelinePass {
 public:
  PipelinePass(Builder& builder, const Tasks& tasks, Tapes& tapes);

  /// Begins to receive what comes with the task, or the next turn.
  void before(const Task& task);
  /// Sends what the task left for other stages; ends what was sent before.
  void after(const Task& task);

 private:
  bool begins_turn(const Task& task) const;
  bool ends_turn(const Task& task) const;
  void receive(const Task& task);
  void send(const Task& task);
  Action& emit(Kind kind, const Task& task, int peer, std::int64_t bytes);

  Builder& builder_;
  Tapes& tapes_;
  const int first_trained_;
  std::vector<Task> turns_;   // the first task of each
  std::size_t begun_ = 0;     // turns that have begun
  std::size_t received_ = 0;  // turns whose receives are written
  int sent_ = -1;             // a buffer in flight
  int sent_by_ = -1;          // the unit that left it
};

}  // namespace ostrakon::plan
