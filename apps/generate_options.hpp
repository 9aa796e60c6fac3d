// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/generate/sampler.hpp>
#include <string>

#include "program.hpp"

namespace ostrakon::apps::generate_program {

extern const char* const usage;

/// The options of a command line.
struct CommandLine {
  std::string model;
  std::optional<std::string> deck, tokenizer, prompt, prompt_file;
  std::optional<std::int64_t> context, threads, end_of_text;
  std::int64_t tokens = 400;
  std::int64_t samples = 1;
  bool ignore_end = false;
  bool ids = false;
  train::SamplingSettings sampling;
};

/// Throws Error for an option that is unknown, has no value or an invalid one, or contradicts
/// another.
CommandLine parse(const Arguments& arguments);

}  // namespace ostrakon::apps::generate_program
