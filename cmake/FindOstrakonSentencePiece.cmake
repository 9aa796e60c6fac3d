# SPDX-License-Identifier: Apache-2.0
# Ostrakon::sentencepiece: SentencePiece, which reads tokenizer.model.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
find_library(OSTRAKON_SENTENCEPIECE_LIBRARY sentencepiece)
mark_as_advanced(OSTRAKON_SENTENCEPIECE_INCLUDE_DIR OSTRAKON_SENTENCEPIECE_LIBRARY)

find_package_handle_standard_args(OstrakonSentencePiece
                                  REQUIRED_VARS OSTRAKON_SENTENCEPIECE_LIBRARY
                                                OSTRAKON_SENTENCEPIECE_INCLUDE_DIR)

if(OstrakonSentencePiece_FOUND AND NOT TARGET Ostrakon::sentencepiece)
  add_library(Ostrakon::sentencepiece INTERFACE IMPORTED)
  target_include_directories(Ostrakon::sentencepiece SYSTEM INTERFACE
                             ${OSTRAKON_SENTENCEPIECE_INCLUDE_DIR})
  target_link_libraries(Ostrakon::sentencepiece INTERFACE ${OSTRAKON_SENTENCEPIECE_LIBRARY})
endif()
