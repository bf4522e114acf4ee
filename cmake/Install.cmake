# What a package or `cmake --install` puts where. `caisson` is for people; the others are started by
# it and live where helper_binary() (base/paths.h) looks.

add_custom_target(caisson_programs)
if(CAISSON_TEST_SWITCHES)
  # The leak tests stop the store at each of its steps with the one, the test of the gateway's datapath
  # leaves out a rule with the other.
  add_dependencies(caisson_programs caisson_image_tool caisson_gateway_tool)
endif()

function(caisson_install_program name destination)
  if(TARGET ${name})
    add_dependencies(caisson_programs ${name})
    install(TARGETS ${name} RUNTIME DESTINATION ${destination})
  endif()
endfunction()

caisson_install_program(caisson ${CMAKE_INSTALL_BINDIR})
caisson_install_program(caisson-launcher ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-guest ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-image-worker ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-image-fetch ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-template-builder ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-serve ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-maker ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-vault ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-remote ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-gateway ${CMAKE_INSTALL_LIBEXECDIR}/caisson)
caisson_install_program(caisson-minter ${CMAKE_INSTALL_LIBEXECDIR}/caisson)

# Where systemd looks, whatever the prefix of libraries is.
install(FILES ${CMAKE_SOURCE_DIR}/packaging/systemd/caisson.service
              ${CMAKE_SOURCE_DIR}/packaging/systemd/caisson-sandboxes.service
        DESTINATION lib/systemd/system)
install(FILES ${CMAKE_SOURCE_DIR}/packaging/apparmor/caisson
        DESTINATION ${CMAKE_INSTALL_DATADIR}/caisson/apparmor)
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/ARCHITECTURE.md
              ${CMAKE_SOURCE_DIR}/SECURITY.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Where the README's links lead.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN "*.md" PATTERN "*.yaml")
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
