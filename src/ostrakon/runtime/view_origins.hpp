// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <ostrakon/math/view_origin.hpp>
#include <ostrakon/runtime/program.hpp>
#include <utility>
#include <vector>

namespace ostrakon::runtime {

/// Keeps, for an executor, the origins of its actions' views: one for each of an action's uses, and
/// one for each role without a buffer that it is asked for. Every program has its own, which live
/// as long as the executor, so that a view that is kept beyond its action is found to have ended,
/// whatever runs by then. If views do not check there are none, at no cost.
class ViewOrigins {
 public:
  /// Makes the origins of a program before it runs, unless it has run here before.
  void prepare(const Program& program);

  /// The origins of an action, live until the end of the scope.
  class Live {
   public:
    Live(ViewOrigin* origins, std::size_t count) : origins_(origins), count_(count) { set(true); }
    ~Live() { set(false); }
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;

   private:
    void set(bool live) {
      for (std::size_t i = 0; i < count_; ++i)
        origins_[i].live.store(live, std::memory_order_relaxed);
    }

    ViewOrigin* origins_;
    std::size_t count_;
  };
  /// Begins an action of the program that was prepared last.
  Live begin(int action) {
    if (!views_check) return {nullptr, 0};
    const auto a = static_cast<std::size_t>(action);
    return {now_->all.get() + now_->first[a], now_->first[a + 1] - now_->first[a]};
  }

  // If views check, these return origins for an action of the program that was prepared last.

  /// Throws std::logic_error where the action does not use that buffer.
  const ViewOrigin* of(const Program& program, const plan::Action& action, int buffer) const;
  /// Returns the origin for a role in which the action has no buffer. It is made on the first call,
  /// by any thread.
  const ViewOrigin* of_none(const Program& program, const plan::Action& action, plan::Role role);

 private:
  struct OfProgram {
    std::uint64_t id = 0;
    std::vector<std::size_t> first;  ///< first origin of each action; then the total number
    std::unique_ptr<ViewOrigin[]> all;
    std::map<std::pair<std::size_t, plan::Role>, ViewOrigin> none;  ///< keyed by action and role

    bool fits(const Program& program) const;
  };

  void find_or_add(const Program& program);

  std::vector<std::unique_ptr<OfProgram>> programs_;
  OfProgram* now_ = nullptr;
  std::mutex mutex_;  ///< protects `none`
};

}  // namespace ostrakon::runtime
