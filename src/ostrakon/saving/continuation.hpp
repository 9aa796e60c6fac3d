// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

// This file checks what a run may resume from: a checkpoint, or weights, of the same model,
// optimizer and data.

namespace ostrakon::train {

/// Changes that a user allows (--allow-changes), though training would continue with something else
/// than before.
struct AllowedChanges {
  bool data = false;       ///< other training data
  bool program = false;    ///< a checkpoint of a later version of Ostrakon
  bool tokenizer = false;  ///< data of another tokenizer than the model was trained with
};

/// Adds the changes in a list like "data,tokenizer". Throws Error for an unknown name, or none.
void allow_changes(const std::string& names, AllowedChanges& allowed);

/// Throws Error, by name and with both values, where the checkpoint is not of the run that the
/// settings and the training data's identity describe: another model, another optimizer, fewer
/// steps, and, unless allowed, another data set or tokenizer or a later program. Settings that may
/// change freely are not compared. Returns lines for messages: what was allowed, and what could not
/// be compared.
std::vector<std::string> require_continuation(const config::Settings& settings, const Facts& data,
                                              const checkpoint::Manifest& manifest,
                                              const std::string& path,
                                              const AllowedChanges& allowed);

/// Checks a part of that, for any model: throws Error where a checkpoint has done more than
/// `steps`, or was saved by a later program. `words`: for messages.
struct ContinuationWords {
  const char* steps = "training.steps";
  const char* begin_anew = "--resume none";
  const char* allow_program = ", or --allow-changes program";
};
std::vector<std::string> require_steps_and_program(const checkpoint::Manifest& manifest,
                                                   std::int64_t steps, bool allows_program,
                                                   const ContinuationWords& words = {});

/// Returns "the checksum of its training data was 17c0, and is 9f0c", if the identity of data
/// differs; else "". A mixture may have more sources than before. `kept`: from a checkpoint, see
/// data::facts_to_keep.
std::string data_change(const Facts& now, const Facts& kept);

/// Throws Error where weights, from `path`, have another tokenizer than the data, or where one of
/// the two does not name its tokenizer, unless allowed; then returns a line for messages. If
/// neither names it, they may be the same. Synthetic data fit all weights, and weights trained on
/// them fit all data.
std::vector<std::string> require_same_tokenizer(const std::string& of_weights,
                                                const std::string& path, const std::string& of_data,
                                                const AllowedChanges& allowed);

/// Throws Error where validation data have another tokenizer than training data, or, if neither
/// names it, another vocabulary: their losses can't be compared. Returns a line for messages if
/// that is allowed. `training_path` is for messages.
std::vector<std::string> require_comparable_validation(const Facts& training,
                                                       const std::string& training_path,
                                                       const Facts& validation,
                                                       const AllowedChanges& allowed);

}  // namespace ostrakon::train
