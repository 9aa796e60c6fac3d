// SPDX-License-Identifier: Apache-2.0
// Loss, perplexity and bits per byte of texts and of token files.
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/data/token_file.hpp>

#include "../text_model/records.hpp"
#include "job.hpp"

namespace ostrakon::apps {
namespace {

/// `bytes`: of the tokens that were predicted, 0: unknown.
Json found_of(const evaluate::Score& score, double bytes, const evaluate::WindowSettings& cut) {
  const double loss = score.loss();
  Json found;
  found["tokens"] = score.tokens;
  found["log_probability"] = score.log_probability;
  found["loss"] = loss;
  found["perplexity"] = std::exp(loss);
  if (bytes > 0.0) found["bits_per_byte"] = -score.log_probability / std::log(2.0) / bytes;
  add_cut(found, cut);
  return found;
}

}  // namespace

void add_cut(Json& found, const evaluate::WindowSettings& cut) {
  found["context"] = cut.context;
  found["stride"] = cut.stride;
}

Job text_job(const EvaluateLine& line, const std::string& path, const FindEncoder& encoder) {
  const std::string content = read_all(path);
  Job job;
  try {
    job.sequences = {encoder().text(content)};
  } catch (const Error& error) {
    throw Error(text(path, ": ", error.what()));
  }
  job.write = [path, json = line.json, bytes = static_cast<double>(content.size())](
                  const auto& scores, const auto& cut) {
    write_found(path, found_of(scores[0], bytes, cut), json);
  };
  return job;
}

Job token_job(const EvaluateLine& line, const std::string& path, std::int64_t vocabulary) {
  const data::TokenFile file(path);
  const data::TokenFileInfo& info = file.info();
  require(info.vocabulary <= vocabulary, "token file '", path, "' has a vocabulary of ",
          info.vocabulary, " (tokenizer ", info.tokenizer, "); the model's is ", vocabulary);
  require(info.token_count >= 2, "token file '", path, "' has ", info.token_count,
          " token; expected at least 2, as each is predicted from others");
  file.verify();
  Job job;
  job.token_file = path;
  // The file tells the bytes of all tokens together, not of those that count.
  const double bytes_per_token = info.has_mask ? 0.0 : info.bytes_per_token().value_or(0.0);
  job.write = [path, json = line.json, bytes_per_token](const auto& scores, const auto& cut) {
    const double bytes = bytes_per_token * static_cast<double>(scores[0].tokens);
    write_found(path, found_of(scores[0], bytes, cut), json);
  };
  return job;
}

}  // namespace ostrakon::apps
