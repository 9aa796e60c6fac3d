// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ostrakon::train {

/// Text that comes piece by piece, up to the first place where one of some texts begins. What may
/// be the beginning of one is held back until more has come.
class StopStringFilter {
 public:
  /// `stops`: none is empty.
  explicit StopStringFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Adds a piece and returns what is known now of the text, without what was returned before.
  std::string add(const std::string& piece);
  /// Returns what was held back, up to one of the texts, where no more comes.
  std::string finish();
  /// Whether one of the texts has come.
  bool is_stopped() const { return is_stopped_; }

 private:
  /// Where the first of the texts in `held_` begins; npos if none is there.
  std::size_t first_stop() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool is_stopped_ = false;
};

}  // namespace ostrakon::train
