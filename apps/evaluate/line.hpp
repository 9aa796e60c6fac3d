// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../common/options.hpp"
#include "../text_model/model.hpp"

namespace ostrakon::apps {

/// What the command line of ostrakon-evaluate says.
struct EvaluateLine : ModelChoice {
  std::vector<std::string> text_files, token_files, choice_files;
  std::optional<std::string> requests_file, answers_file;
  std::string delimiter = " ";
  std::optional<std::int64_t> stride;
  bool json = false;
  std::vector<config::Override> overrides;
};

/// The options, whose values go to `line`.
Program evaluate_program(EvaluateLine& line);

}  // namespace ostrakon::apps
