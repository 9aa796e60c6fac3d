// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/evaluate/scorer.hpp>
#include <ostrakon/evaluate/sequences.hpp>
#include <string>
#include <vector>

#include "../text_model/questions.hpp"
#include "../text_model/records.hpp"
#include "line.hpp"

namespace ostrakon::apps {

/// What is evaluated together: sequences, or a token file; and what becomes of their scores.
struct Job {
  std::vector<evaluate::Sequence> sequences;
  std::string token_file;  ///< in place of sequences; else empty
  /// Writes what the scores of the sequences say, and how long texts were cut, on rank 0. Throws
  /// Error where it can't.
  std::function<void(const std::vector<evaluate::Score>& scores,
                     const evaluate::WindowSettings& cut)>
      write;
};

/// Reads the files that the command line names. `vocabulary`: of the model. Throws Error, naming
/// the file and the line, for what can't be read or is not as --help says.
std::vector<Job> read_jobs(const EvaluateLine& line, std::int64_t vocabulary,
                           const FindEncoder& encoder);

/// Adds the context and the stride, without which losses of two models can't be compared.
void add_cut(Json& found, const evaluate::WindowSettings& cut);

// The parts of read_jobs, a file each.
Job text_job(const EvaluateLine& line, const std::string& path, const FindEncoder& encoder);
Job token_job(const EvaluateLine& line, const std::string& path, std::int64_t vocabulary);
Job choice_job(const EvaluateLine& line, const std::string& path, const FindEncoder& encoder);
Job request_job(const EvaluateLine& line, std::int64_t vocabulary, const FindEncoder& encoder);

}  // namespace ostrakon::apps
