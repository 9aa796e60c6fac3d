// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/graph/program.hpp>

namespace ostrakon::model::graph {

/// While one exists, is told of each call that units of the calling thread begin, once for all of
/// its runs, and for each piece where it is by piece. Exchanges are not told.
class CallWatch {
 public:
  CallWatch() : outer_(current) { current = this; }
  virtual ~CallWatch() { current = outer_; }
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  /// `floor_bytes`: those of floor_bytes() below.
  virtual void begins(const Call& call, double floor_bytes) = 0;

  static CallWatch* of_thread() { return current; }

 private:
  static inline thread_local CallWatch* current = nullptr;

  CallWatch* outer_;
};

/// The bytes that a call can't but move, if each value that it reads and each weight is read once,
/// and each value and gradient that it writes is written once; of a table all rows count. Of a call
/// by piece for one piece.
double floor_bytes(const PlacedCall& call, const Program& program);

}  // namespace ostrakon::model::graph
