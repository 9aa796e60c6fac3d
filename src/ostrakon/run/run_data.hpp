// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/run_options.hpp>
#include <ostrakon/run/validation.hpp>

namespace ostrakon::train {

/// The data of a run.
struct RunData {
  std::unique_ptr<data::Dataset> training;
  Validation validation;
};

/// Opens the data that the settings name and prints what is there. In a dry run no checksum is
/// verified. `loss` is the model's. Collective; throws CollectiveError where data can't be read, or
/// where training and validation data can't be compared.
RunData open_run_data(const config::Settings& settings, const model::LossTerms& loss,
                      const RunOptions& options, comm::Communicator& world, Console& console);

}  // namespace ostrakon::train
