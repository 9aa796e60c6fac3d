// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <string>

namespace ostrakon::config {

/// Throws Error, naming keys, for settings of a model that contradict each other. `name`: of the
/// deck.
void check_model(const model::DecoderSettings& model, const std::string& name);

/// Throws Error for adapters where they are not computed, or nothing else could be meant.
void check_lora(const Settings& settings, const std::string& name);

/// Throws Error for experts that do not fit together, or to the ranks that share them.
void check_experts(const Settings& settings, const std::string& name);

/// Throws Error for a module of multi-token prediction where its targets or embeddings can't be
/// had.
void check_modules(const Settings& settings, const std::string& name);

/// Throws Error for training.objective = dpo with data, a model or a division that it can't have.
void check_pairs(const Settings& settings, const std::string& name);

/// Throws Error for separate documents in data or a model that can't have them.
void check_documents(const Settings& settings, const std::string& name);

}  // namespace ostrakon::config
