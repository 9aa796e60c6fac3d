// SPDX-License-Identifier: Apache-2.0
#include "serial_program.hpp"

#include <exception>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files.hpp>

#include "message.hpp"

namespace ostrakon::apps {

int run_serial_program(const std::string& name, const std::function<int()>& body) {
  get_errors_for_file_sizes();
  try {
    const int status = body();
    std::cout.flush();
    require(std::cout.good(), "can't write to the standard output");
    return status;
  } catch (const std::exception& error) {
    std::cerr << error_message(name, error.what()) + "\n" << std::flush;
    return 1;
  }
}

}  // namespace ostrakon::apps
