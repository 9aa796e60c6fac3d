// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <ostrakon/math/view_origin.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <vector>

namespace ostrakon::runtime {

/// Of an executor: where the views come from that its actions work with, one origin for each of an
/// action's uses. They stay, so that a view that is kept beyond its action finds that it has ended.
/// None, at no cost, where views do not check.
class ViewOrigins {
 public:
  /// Names those of a program, before it runs.
  void prepare(const Program& program);

  /// The origins of an action, live until the end of the scope.
  class Live {
   public:
    Live(ViewOrigin* origins, std::size_t count) : origins_(origins), count_(count) { set(true); }
    ~Live() { set(false); }
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;
    const ViewOrigin* origins() const { return origins_; }

   private:
    void set(bool live) {
      for (std::size_t i = 0; i < count_; ++i)
        origins_[i].live.store(live, std::memory_order_relaxed);
    }

    ViewOrigin* origins_;
    std::size_t count_;
  };
  Live begin(int action) {
    if (!views_check) return {nullptr, 0};
    const Origins& origins = origins_[static_cast<std::size_t>(action)];
    return {origins.all.get(), origins.count};
  }

 private:
  struct Origins {
    std::unique_ptr<ViewOrigin[]> all;
    std::size_t count = 0;
  };

  const Program* program_ = nullptr;  ///< whose names they have
  std::size_t actions_ = 0;
  std::vector<Origins> origins_;                        ///< by action
  std::vector<std::unique_ptr<ViewOrigin[]>> retired_;  ///< views may still refer to them
};

}  // namespace ostrakon::runtime
