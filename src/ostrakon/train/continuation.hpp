// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

// What a run may resume from: a checkpoint, or weights, of the same model, optimizer and data.

namespace ostrakon::train {

/// What a user allows to have changed, though training would continue with something else than
/// before: --allow-changes.
struct AllowedChanges {
  bool data = false;       ///< other training data
  bool program = false;    ///< a checkpoint of a later version of Ostrakon
  bool tokenizer = false;  ///< data of another tokenizer than the model was trained with
};

/// Adds what "data,tokenizer" names. Throws Error for an unknown name, or none.
void allow_changes(const std::string& names, AllowedChanges& allowed);

/// Throws Error, by name and with both values, where the run that the settings and the training
/// data's identity describe is not the one that the checkpoint is of: another model, another
/// optimizer, fewer steps, and, unless allowed, another data set or tokenizer or a later program.
/// What the settings may change freely is not looked at. Returns lines for people: what was
/// allowed, and what could not be compared.
std::vector<std::string> require_continuation(const config::Settings& settings, const Facts& data,
                                              const checkpoint::Manifest& manifest,
                                              const std::string& path,
                                              const AllowedChanges& allowed);

/// Part of it, for any model: throws Error where a checkpoint has done more than `steps`, or was
/// saved by a later program. `words`: of messages.
struct ContinuationWords {
  const char* steps = "training.steps";
  const char* begin_anew = "--resume none";
  const char* allow_program = ", or --allow-changes program";
};
std::vector<std::string> require_steps_and_program(const checkpoint::Manifest& manifest,
                                                   std::int64_t steps, bool allows_program,
                                                   const ContinuationWords& words = {});

/// "the checksum of its training data was 17c0, and is 9f0c", where the identity of data differs;
/// else empty. `before`: as a checkpoint has it.
std::string data_change(const Facts& now, const Facts& before);

/// Throws Error where weights, from `path`, are of other tokens than the data has, or where one of
/// the two does not say whose tokens those are, unless allowed; a line for people where that is so.
/// Where neither says, they may be the same. Synthetic data go with all weights, and weights
/// trained on them with all data.
std::vector<std::string> require_same_tokenizer(const std::string& of_weights,
                                                const std::string& path, const std::string& of_data,
                                                const AllowedChanges& allowed);

/// Throws Error where validation data is of another tokenizer than training data, or, where neither
/// says which made it, of another vocabulary: their losses can't be compared. A line for people
/// where that is allowed. `training_path` is for messages.
std::vector<std::string> require_comparable_validation(const Facts& training,
                                                       const std::string& training_path,
                                                       const Facts& validation,
                                                       const AllowedChanges& allowed);

}  // namespace ostrakon::train
