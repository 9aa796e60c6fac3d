// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/builder.hpp>

namespace ostrakon::plan {

/// Shows the master parameters to the caller, one unit after the other, whole on each rank.
class ExportPass {
 public:
  explicit ExportPass(Builder& builder) : builder_(builder) {}

  void on(const Task& task);

 private:
  Builder& builder_;
};

}  // namespace ostrakon::plan
