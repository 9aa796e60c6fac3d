// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/names.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

enum class DatasetKind { tokens, synthetic };
constexpr Named<DatasetKind> dataset_names[] = {{DatasetKind::tokens, "tokens"},
                                                {DatasetKind::synthetic, "synthetic"}};
constexpr const char* name(DatasetKind kind) { return name_in(dataset_names, kind); }

/// What a sample has of documents.
enum class Documents {
  continued,  ///< consecutive tokens, in which one document follows the other
  separate    ///< whole documents, which do not see each other
};
constexpr Named<Documents> documents_names[] = {{Documents::continued, "continue"},
                                                {Documents::separate, "separate"}};
constexpr const char* name(Documents documents) { return name_in(documents_names, documents); }
/// What a model learns from samples.
enum class Objective {
  next_token,  ///< to predict each token
  dpo          ///< to prefer one of two answers, which are a sample: math::pair_losses
};
constexpr Named<Objective> objective_names[] = {{Objective::next_token, "next_token"},
                                                {Objective::dpo, "dpo"}};
constexpr const char* name(Objective objective) { return name_in(objective_names, objective); }
/// DataSettings::restart_positions.
constexpr Named<bool> document_positions_names[] = {{true, "restart"}, {false, "continue"}};

struct DataSettings {
  DatasetKind dataset = DatasetKind::tokens;
  std::string path;             ///< for `tokens`: a token file, or a mixture; see read_files
  std::string validation_path;  ///< token file, or empty: no validation
  bool verify = true;           ///< check the file's checksum before training
  Documents documents = Documents::continued;
  bool restart_positions = true;  ///< whether positions of separate documents begin at 0 each
  Objective objective = Objective::next_token;
  std::string reference;  ///< for `dpo`: prefix of files, see data/reference_file.hpp; or empty
  double synthetic_noise = 0.1;  ///< fraction of tokens that the synthetic process draws at random
};

/// Limits of weights: the largest one, and the least part of their sum, but 0, so that a block of
/// samples of a MixtureOrder, of at most 1 / least_share samples, has a sample of each file.
constexpr double most_weight = 1e9, least_share = 1.0 / (1 << 20);

/// A token file that training draws from, and how much.
struct WeightedFile {
  std::string path;
  double weight = 1.0;  ///< the samples drawn from it, relative to those drawn from others
};

/// Reads a file, or a mixture of files: "0.7 web.h5; 0.3 code.h5". Files are separated by ';'; a
/// weight, a number and a space, comes before the file's path and is 1 if there is none. Spaces
/// around a file are no part of it. Throws Error for a file without a path and for weights that are
/// not from 0 to most_weight, all 0, or below least_share of their sum. Empty text is no file.
std::vector<WeightedFile> read_files(const std::string& text);

/// Writes a number in the fewest digits that read_files reads back to it.
std::string write_number(double number);

/// Writes files as read_files reads them; one file of weight 1 is its path.
std::string write_files(const std::vector<WeightedFile>& files);

}  // namespace ostrakon::data
