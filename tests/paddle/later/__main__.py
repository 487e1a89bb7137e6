from tests.paddle.later import main

main()
