// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/input.hpp>

namespace ostrakon::apps {

std::string read_file(const std::string& path) {
  require(!is_folder(path), path, ": is a folder; expected a deck");
  // The size is limited, as a data file may be given by mistake.
  return read_text(path, 1 << 20);
}

config::Settings read_deck(comm::Communicator& world, const std::string& path,
                           const std::vector<config::Override>& overrides) {
  std::string text;
  world.run_collectively([&] {
    if (world.rank() == 0) text = read_file(path);
  });
  text = world.broadcast(text, 0);
  config::Settings settings;
  world.run_collectively([&] { settings = config::read_settings(text, path, overrides); });
  return settings;
}

}  // namespace ostrakon::apps
