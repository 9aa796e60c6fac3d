// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/generate/sampler.hpp>
#include <string>
#include <vector>

#include "../common/options.hpp"
#include "../text_model/model.hpp"

namespace ostrakon::apps {

/// What the command line of ostrakon-generate says.
struct Line : ModelChoice {
  std::vector<std::string> prompts;
  std::optional<std::string> prompt_file, prompts_file, messages_file;
  std::optional<std::int64_t> end_of_text, batch;
  std::optional<int> threads;
  std::int64_t tokens = 400;
  std::int64_t samples = 1;
  std::vector<std::string> stops;
  bool is_chat = false;
  bool ignore_end = false;
  bool json = false;
  DType dtype = DType::fp32;
  train::SamplingSettings sampling;
};

/// The options, whose values go to `line`.
Program generate_program(Line& line);

}  // namespace ostrakon::apps
